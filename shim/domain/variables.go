package domain

import (
	"context"
	"os"
	"path/filepath"
	"strconv"

	"libvirt.org/go/libvirt"
)

const (
	// variablesSet is the number of the set of descriptors with the firmware's variables, before
	// those of hotplugged disks.
	variablesSet = firstSet - 1
	// variablesNode is QEMU's name of the file with the variables, flashProperty the machine's
	// property with the name of the node that the second flash, that of the variables, is on.
	variablesNode = "nodevirt-variables"
	flashProperty = "pflash1"
)

// firstVariables are QEMU's names of the nodes that libvirt has it open for the second flash, the upper
// one first. libvirt 11 makes no node of the format for raw files.
var firstVariables = []string{"libvirt-pflash1-format", "libvirt-pflash1-storage"}

// KeepVariables makes QEMU write the UEFI variables of a domain that has not run yet to file,
// which must have the content of [Description.UEFIVariables]. The file stays the caller's, who can close
// it afterwards. A lock that flock has made stays until QEMU ends. QEMU itself lets others write
// what its flash is in.
//
// It exists because libvirt 9.0 accepts an FD group for the variables, and then passes QEMU no
// descriptor of it. QEMU reads its flash once, before the guest runs.
func (l *Lifecycle) KeepVariables(ctx context.Context, uuid string, file *os.File) error {
	const op = "keep the UEFI variables of"
	files, err := duplicate(map[string][]*os.File{"": {file}})
	if err != nil {
		return &failure{op: op, object: "domain " + uuid, detail: err}
	}
	_, err = await(ctx, op, "domain "+uuid, func() (struct{}, error) {
		defer files.close()
		return struct{}{}, do(context.WithoutCancel(ctx), l.conn, op, uuid, func(dom *libvirt.Domain) error {
			return writeVariables(dom, files[""])
		})
	})
	return err
}

func writeVariables(dom *libvirt.Domain, files []*os.File) error {
	if err := addFiles(dom, variablesSet, files); err != nil {
		return err
	}
	_, err := command(dom, "blockdev-add", map[string]any{
		"driver": "file", "node-name": variablesNode, "filename": filepath.Join(fdSets, strconv.Itoa(variablesSet)), "read-only": false,
	})
	if err != nil {
		return err
	}
	_, err = command(dom, "qom-set", map[string]any{"path": "/machine", "property": flashProperty, "value": variablesNode})
	if err != nil {
		return err
	}
	nodes, err := nodesOf(dom)
	if err != nil {
		return err
	}
	for _, name := range firstVariables {
		if !nodes[name] {
			continue
		}
		if _, err := command(dom, "blockdev-del", map[string]any{"node-name": name}); err != nil {
			return err
		}
	}
	return nil
}
