//go:build !slow

package netsetup

// matrixFamilies returns the families of addresses of the cells that each change is tested with.
func matrixFamilies() [][]int { return [][]int{{4, 6}} }
