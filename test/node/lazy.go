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

// Fetched is how many bytes of a lazy layer the node's snapshotter has; 0 for a moment when the snapshotter's text
// grows. The layer must be mounted; digest is its blob's.
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
		err = json.Unmarshal(text, &state)
		if bad, ok := errors.AsType[*json.SyntaxError](err); ok && bad.Offset == int64(len(text)) {
			return 0, nil // the text has grown, and the kernel cuts it at its former size
		}
		if err != nil {
			return 0, fmt.Errorf("read the state of layer %s: %w", digest, err)
		}
		return state.FetchedSize, nil
	}
	return 0, fmt.Errorf("find layer %s: the snapshotter has not mounted it at one of %q", digest, mounts)
}
