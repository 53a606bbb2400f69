package vmspec

import (
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	kubevirt "kubevirt.io/api/core/v1"
)

// StatePath is where the VM's container mounts the volume with the VM's persistent state.
const StatePath = "/var/run/kubevirt-state"

// State is what a VM remembers in a volume while it does not run.
type State struct {
	// Folder is that of the volume, on the node.
	Folder string `json:"folder"`
	// Variables says that it has the variables of the UEFI firmware, TPM that it has the state of the TPM.
	Variables bool `json:"variables,omitempty"`
	TPM       bool `json:"tpm,omitempty"`
}

// PersistentState returns what a VMI keeps in such a volume, whose folder only its node knows; nil
// for nothing.
func PersistentState(vmi *kubevirt.VirtualMachineInstanceSpec) *State {
	s := State{}
	if f := vmi.Domain.Firmware; f != nil && f.Bootloader != nil && f.Bootloader.EFI != nil {
		s.Variables = isOr(f.Bootloader.EFI.Persistent, false)
	}
	if t := vmi.Domain.Devices.TPM; t != nil {
		s.TPM = isOr(t.Enabled, true) && isOr(t.Persistent, false)
	}
	if s == (State{}) {
		return nil
	}
	return &s
}

// readState finds the folder of the state.
func readState(c *runtimeapi.ContainerConfig, s *State) (*State, error) {
	at := slices.IndexFunc(c.GetMounts(), func(m *runtimeapi.Mount) bool { return m.GetContainerPath() == StatePath })
	name := excerpt(c.GetMetadata().GetName())
	switch {
	case at < 0 && s == nil:
		return nil, nil
	case at < 0:
		return nil, fmt.Errorf("%s: spec.domain: persistent firmware or TPM: container %s mounts no volume at %s; mount a PVC there",
			AnnotationVMI, name, StatePath)
	case s == nil:
		return nil, fmt.Errorf("container %s: volume mounted at %s: nothing in annotation %s is persistent: efi.persistent or tpm.persistent; "+
			"add one, or remove the volume", name, StatePath, AnnotationVMI)
	}
	m, err := readMount(c.GetMounts()[at])
	if err == nil && (m.host == "" || m.readOnly || strings.Contains(path.Clean(m.host), "/volume-subpaths/")) {
		err = errors.New("persistent state needs a PVC with volumeMode Filesystem, without readOnly and subPath")
	}
	if err != nil {
		return nil, fmt.Errorf("container %s: volume mounted at %s: %w", name, StatePath, err)
	}
	return &State{Folder: m.host, Variables: s.Variables, TPM: s.TPM}, nil
}
