"""Files before they are a corpus: archives, tables and their encodings, what Parquet holds, and words for what is wrong."""
