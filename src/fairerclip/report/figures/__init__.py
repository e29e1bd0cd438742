"""Figures of the results of an audit for papers, drawn by matplotlib."""
