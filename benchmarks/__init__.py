"""What is measured and how, one script a figure."""
