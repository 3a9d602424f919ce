"""Stories: traced, read as a graph of sites, and checked at the door."""
