package persist

// SetPart sets how many bytes that are not zeros, and how many bytes, a part of a disk has.
func SetPart(data, size int64) { partData, partSize = data, size }
