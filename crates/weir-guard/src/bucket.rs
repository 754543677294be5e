//! Token buckets as one word each: the generic cell rate algorithm (GCRA, ITU-T I.371).
