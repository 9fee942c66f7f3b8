"""What a run looked like, as an HTML page: answers, plots, comparisons."""
