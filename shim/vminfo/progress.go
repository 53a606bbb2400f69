package vminfo

import (
	"encoding/json"
	"fmt"
	"time"
)

// MakingKey is the key of Making in the map of a verbose PodSandboxStatus.
const MakingKey = "nodevirt"

// Making is a VM container of a pod that CreateContainer is creating.
type Making struct {
	Container string         `json:"container"`
	Disks     []DiskProgress `json:"disks"`
}

// DiskProgress is the progress of a disk that is being expanded.
type DiskProgress struct {
	Disk string `json:"disk"`
	// Waiting is true while it waits for other disks. Done is the completed fraction, 0 to 1.
	Waiting bool      `json:"waiting,omitempty"`
	Done    float64   `json:"done"`
	Since   time.Time `json:"since"`
}

// ReadMaking decodes Making from the map of a verbose reply. It returns nil if no
// container is being created.
func ReadMaking(verbose map[string]string) (*Making, error) {
	text := verbose[MakingKey]
	if text == "" {
		return nil, nil
	}
	var m Making
	if err := json.Unmarshal([]byte(text), &m); err != nil {
		return nil, fmt.Errorf("read the verbose status: %w", err)
	}
	return &m, nil
}
