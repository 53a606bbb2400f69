//go:build slow

package netsetup

// matrixFamilies returns the families of addresses of the whole matrix's cells.
func matrixFamilies() [][]int { return [][]int{{4}, {6}, {4, 6}} }
