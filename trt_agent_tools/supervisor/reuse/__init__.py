"""Engine reuse: an identical request is answered with the engine that an earlier build made."""
