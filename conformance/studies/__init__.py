"""Studies of the judge: calibration, power, cost. Each writes a dated table to reports/studies/."""
