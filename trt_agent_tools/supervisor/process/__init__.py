"""Processes of builds: started, listened to, ended, and proven gone."""
