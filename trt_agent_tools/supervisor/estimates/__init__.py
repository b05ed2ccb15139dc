"""What past builds let expect of one: its length, whether it fits a budget, what to try next."""
