//! The fault report, from what runs have written and from nothing else.
