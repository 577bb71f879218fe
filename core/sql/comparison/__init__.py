"""What two versions of a statement are compared by: state parts, qualified columns, edits, types."""
