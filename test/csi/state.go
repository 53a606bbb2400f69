package csi

import (
	"crypto/sha256"
	"encoding/hex"
	"os"
	"path/filepath"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/validation"
)

// state is the driver's folder. The controller alone writes volumes and snapshots.
type state struct {
	volumes   store[volume]
	snapshots store[snapshot]
	nodes     string // a folder for each node, which is the node's
}

// volume is the record of a volume.
type volume struct {
	Name     string
	Bytes    int64
	Block    bool // it is used without a file system of ours
	Source   source
	Attached map[string]attachment // by node
}

// source is what a volume began as a copy of: one of these, or neither.
type source struct{ Volume, Snapshot string }

// attachment says how a node has a volume.
type attachment struct {
	Mode     string // the CSI name of the access mode
	Block    bool
	ReadOnly bool
}

// snapshot is the record of a snapshot.
type snapshot struct {
	Name   string
	Volume string // its source's id
	Bytes  int64
	Taken  time.Time
}

// id is that of a volume or a snapshot with a name.
func id(name string) string {
	sum := sha256.Sum256([]byte(name))
	return hex.EncodeToString(sum[:16])
}

// isID reports whether a caller's text can be an id of ours, and be part of a path.
func isID(text string) bool { return len(text) == 32 && strings.Trim(text, "0123456789abcdef") == "" }

// isNode reports whether a text can be the name of a node, and be part of a path.
func isNode(text string) bool { return len(validation.IsDNS1123Subdomain(text)) == 0 }

// known reports whether a node's part of the driver was started.
func (s state) known(node string) bool {
	if !isNode(node) {
		return false
	}
	info, err := os.Stat(filepath.Join(s.nodes, node))
	return err == nil && info.IsDir()
}
