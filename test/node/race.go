package node

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
)

// race returns the first report of Go's race detector in the shim's log. Only the shim of make test-race has
// the detector.
func (n *Node) race() string {
	text, err := os.ReadFile(n.o.log(Shim))
	if errors.Is(err, fs.ErrNotExist) { // a node without a shim
		return ""
	}
	if err != nil {
		return fmt.Sprintf("read the shim's log: %v", err)
	}
	return firstRace(string(text))
}

// firstRace returns the first report of the race detector in a log.
func firstRace(log string) string {
	const head, line = "WARNING: DATA RACE", "=================="
	_, report, found := strings.Cut(log, head)
	if !found {
		return ""
	}
	report, _, _ = strings.Cut(report, line)
	return head + report
}
