"""The plan's document in the formats that `plan -o` and `explain -o` offer. Text out; nothing here prints."""
