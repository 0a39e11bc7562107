"""The daemon: follows all sessions of this user, keeps what it saw, and acts where it may."""
