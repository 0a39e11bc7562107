"""The daemon: follows all sessions of this user, records what it sees, and acts where it may."""
