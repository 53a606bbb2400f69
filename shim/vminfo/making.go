package vminfo

import (
	"encoding/json"
	"fmt"
	"time"
)

// MakingKey is where Making is in "info" of a verbose PodSandboxStatus.
const MakingKey = "nodevirt"

// Making is a VM container of a pod that CreateContainer has not made yet.
type Making struct {
	Container string         `json:"container"`
	Disks     []DiskProgress `json:"disks"`
}

// DiskProgress is how far a disk is that is being expanded.
type DiskProgress struct {
	Disk string `json:"disk"`
	// Waiting says that it waits for other disks; Done is the part that is done, 0 to 1.
	Waiting bool      `json:"waiting,omitempty"`
	Done    float64   `json:"done"`
	Since   time.Time `json:"since"`
}

// ReadMaking finds Making in the map of a verbose reply; nil if nothing is being made.
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
