"""Where pixels come from: folders, archives and arrays, decoded by one policy."""
