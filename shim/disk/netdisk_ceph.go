package disk

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/google/renameio/v2"
)

// cephConfig has time limits: without them a start waits for minutes for monitors that
// are away, and a write without an end for OSDs. A guest that was stopped at an error
// goes on when the cluster answers. With these limits, no cache may confirm a write
// before the cluster does: librbd reports that such a write failed to one flush only, and
// the flush that QEMU then repeats succeeds without the data. QEMU turns the cache on for
// cache modes other than none.
const cephConfig = `[global]
client_mount_timeout = 5
rados_mon_op_timeout = 5
rados_osd_op_timeout = 20
rbd_cache_policy = writethrough
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
