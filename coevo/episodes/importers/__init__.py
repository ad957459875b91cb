"""Public datasets as episodes, one module a layout, each told explicitly which camera and which numbers to take."""
