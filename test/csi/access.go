package csi

import (
	"slices"

	spec "github.com/container-storage-interface/spec/lib/go/csi"
)

// fsType is the file system that volumes get, unless they are block volumes. A mounted ext4 grows only by
// a process with CAP_SYS_RESOURCE, which root in a container may not have.
const fsType = "xfs"

// A volume can be on several nodes at once in these modes, and each sees what the others write.
func shared(mode spec.VolumeCapability_AccessMode_Mode) bool {
	switch mode {
	case spec.VolumeCapability_AccessMode_MULTI_NODE_READER_ONLY,
		spec.VolumeCapability_AccessMode_MULTI_NODE_SINGLE_WRITER,
		spec.VolumeCapability_AccessMode_MULTI_NODE_MULTI_WRITER:
		return true
	}
	return false
}

func readOnly(mode spec.VolumeCapability_AccessMode_Mode) bool {
	return mode == spec.VolumeCapability_AccessMode_SINGLE_NODE_READER_ONLY ||
		mode == spec.VolumeCapability_AccessMode_MULTI_NODE_READER_ONLY
}

// check returns an error unless a volume can be used in a way. All nodes have one kernel: a file system that
// several of them have mounted is the same one, with the same files and locks.
func check(c *spec.VolumeCapability) error {
	switch {
	case c == nil:
		return invalid("no volume capability is given")
	case c.GetAccessMode().GetMode() == spec.VolumeCapability_AccessMode_UNKNOWN:
		return invalid("no access mode is given")
	case c.GetBlock() != nil:
		return nil
	case c.GetMount() == nil:
		return invalid("neither a block volume nor a file system is wanted")
	case !slices.Contains([]string{"", fsType}, c.GetMount().GetFsType()):
		return invalid("file system %s: use %s", c.GetMount().GetFsType(), fsType)
	}
	return nil
}

func checkAll(all []*spec.VolumeCapability) error {
	if len(all) == 0 {
		return invalid("no volume capabilities are given")
	}
	for _, c := range all {
		if err := check(c); err != nil {
			return err
		}
	}
	return nil
}
