"""From a launch of a configuration to what it says."""
