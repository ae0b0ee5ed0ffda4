"""The same regression problems solved by srgp and by other libraries, and the differences."""
