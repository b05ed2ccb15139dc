"""Policy files and what they say."""
