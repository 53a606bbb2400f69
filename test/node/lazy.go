package node

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
)

// Fetched is how many bytes of a lazy layer the node's snapshotter has. The layer must be mounted; digest is its
// blob's.
func Fetched(n *Node, digest string) (int64, error) {
	pattern := filepath.Join("/proc", strconv.Itoa(n.PID()), "root", n.Dir(), "stargz/snapshotter/snapshots/*/fs")
	mounts, err := filepath.Glob(pattern)
	if err != nil {
		return 0, fmt.Errorf("find layer %s: %w", digest, err)
	}
	for _, m := range mounts {
		text, err := os.ReadFile(filepath.Join(m, ".stargz-snapshotter", digest+".json"))
		if errors.Is(err, fs.ErrNotExist) { // another layer
			continue
		}
		if err != nil {
			return 0, fmt.Errorf("read the state of layer %s: %w", digest, err)
		}
		var state struct{ FetchedSize int64 }
		if err := json.Unmarshal(text, &state); err != nil {
			return 0, fmt.Errorf("read the state of layer %s: %w", digest, err)
		}
		return state.FetchedSize, nil
	}
	return 0, fmt.Errorf("find layer %s: the snapshotter has not mounted it at one of %q", digest, mounts)
}
