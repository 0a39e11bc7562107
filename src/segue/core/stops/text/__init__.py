"""What does a text say? From words to signs, with the wordings of providers and agents. Pure."""
