"""A paper's tables and figures: experiments as files, their runs, ours beside the paper's."""
