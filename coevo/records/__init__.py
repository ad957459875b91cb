"""What stages say to one another and to people: small typed records, without torch.

`flows/` may import this package and nothing else of coevo, so that a flow starts in a second.
"""
