package disk

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/google/renameio/v2"
)

// cephConfig has time limits: without them a start waits for minutes for monitors that
// are away, and a write without an end for OSDs. A guest that was stopped at an error
// goes on when the cluster answers.
const cephConfig = `[global]
client_mount_timeout = 5
rados_mon_op_timeout = 5
rados_osd_op_timeout = 20
`

// writeCephConfig writes librados' configuration, which all VMs read.
func writeCephConfig(path string) error {
	err := os.MkdirAll(filepath.Dir(path), 0o755)
	if err == nil {
		err = renameio.WriteFile(path, []byte(cephConfig), 0o644)
	}
	if err != nil {
		return fmt.Errorf("write the configuration of RBD disks: %w", err)
	}
	return nil
}
