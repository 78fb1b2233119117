"""Reports: tables, figures and a page, from nothing but run folders."""
