// Command kinds prints the table of the controller's API kinds as JSON, for the
// generator of their CustomResourceDefinitions.
package main

import (
	"encoding/json"
	"fmt"
	"os"

	"github.com/nodevirt/nodevirt/controller/kinds"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "kinds:", err)
		os.Exit(1)
	}
}

func run() error {
	out := json.NewEncoder(os.Stdout)
	out.SetIndent("", "  ")
	return out.Encode(kinds.Definitions())
}
