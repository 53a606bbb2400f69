// Command nonewprivs, with the set-user-id bit, prints the user that it runs as: root only where a
// container's processes may gain privileges.
package main

import (
	"fmt"
	"os"
)

func main() { fmt.Printf("Effective uid: %d\n", os.Geteuid()) }
