package hostcpu

import (
	"crypto/sha256"
	"fmt"
	"os"
	"strings"
)

// Identify returns a line that differs for processors whose models or features do. Path is
// /proc/cpuinfo.
func Identify(path string) (string, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return "", fmt.Errorf("read the node's CPU: %w", err)
	}
	first, _, _ := strings.Cut(string(text), "\n\n")
	is := map[string]string{}
	for line := range strings.Lines(first) {
		name, value, _ := strings.Cut(line, ":")
		is[strings.TrimSpace(name)] = strings.TrimSpace(value)
	}
	if is["vendor_id"] == "" || is["flags"] == "" {
		return "", fmt.Errorf("read the node's CPU: %s does not name its vendor and flags", path)
	}
	return fmt.Sprintf("%s %s/%s/%s, features %x", is["vendor_id"], is["cpu family"], is["model"], is["stepping"],
		sha256.Sum256([]byte(is["flags"]))), nil
}
