"""How good a revision is: scores, calibration, costs, plots and the audit of its log."""
