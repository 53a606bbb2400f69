package pod

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/rand"
	kubevirt "kubevirt.io/api/core/v1"
)

const (
	// namePrefix is KubeVirt's: dashboards and people look for it.
	namePrefix = "virt-launcher-"
	maxName    = 253
	maxLabel   = 63
	hashLength = 5
)

// Name returns the name of an instance's one pod. It has the instance's UID in
// it, so that the pod of a new instance of that name is another.
func Name(vmi *kubevirt.VirtualMachineInstance) string {
	return UniqueName(namePrefix+vmi.Name, maxName, string(vmi.UID))
}

// UniqueName returns a name that begins as base does, with five characters at its
// end that come of a text, and has at most limit characters.
func UniqueName(base string, limit int, of string) string {
	sum := sha256.Sum256([]byte(of))
	hash := rand.SafeEncodeString(hex.EncodeToString(sum[:]))[:hashLength]
	return clip(base, limit-1-hashLength) + "-" + hash
}

// hostname is what the instance says, or else its name up to the first dot.
func hostname(vmi *kubevirt.VirtualMachineInstance) string {
	if vmi.Spec.Hostname != "" {
		return vmi.Spec.Hostname
	}
	first, _, _ := strings.Cut(vmi.Name, ".")
	return clip(first, maxLabel)
}

// clip shortens a name without leaving a character at its end that no name ends in.
func clip(name string, limit int) string {
	return strings.TrimRight(name[:min(len(name), limit)], "-.")
}

// RevisionName returns KubeVirt's name of the ControllerRevision of a VirtualMachine's
// spec, as an instance was started from it.
func RevisionName(vm types.UID, generation string) string {
	return "revision-start-vm-" + string(vm) + "-" + generation
}
