package vmspec

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
)

// NetworkDisk is a PVC that QEMU opens over the network. The controller finds it in the
// PVC's PersistentVolume. Exactly one of ISCSI and RBD is set.
type NetworkDisk struct {
	// PVC and Volume are the names of the PVC and its PersistentVolume, for messages.
	PVC    string `json:"pvc"`
	Volume string `json:"volume"`
	// ReadOnly says that the volume can't be written. Shared says that VMs of several
	// pods may write the volume.
	ReadOnly bool `json:"readOnly,omitempty"`
	Shared   bool `json:"shared,omitempty"`
	// SecretName is the name of the Secret with the credentials; empty for none. SecretMount
	// is the last part of the path at which the container mounts the Secret.
	SecretName  string `json:"secretName,omitempty"`
	SecretMount string `json:"secretMount,omitempty"`

	ISCSI *ISCSIVolume `json:"iscsi,omitempty"`
	RBD   *RBDVolume   `json:"rbd,omitempty"`
}

// ISCSIVolume is a logical unit of an iSCSI target.
type ISCSIVolume struct {
	// Portals are host names or addresses, with ports.
	Portals []string `json:"portals"`
	Target  string   `json:"target"`
	LUN     int      `json:"lun"`
	// Initiator is QEMU's name for the target; empty for QEMU's default.
	Initiator string `json:"initiator,omitempty"`
}

// RBDVolume is an image of Ceph.
type RBDVolume struct {
	// Monitors are host names or addresses, with ports.
	Monitors []string `json:"monitors"`
	Pool     string   `json:"pool"`
	Image    string   `json:"image"`
	User     string   `json:"user"`
}

// Keys identify what the disk is, whatever its names in Kubernetes: disks with a common
// key are the same. The name of an iSCSI target is unique in the world. Clusters of
// Ceph differ by their monitors.
func (n NetworkDisk) Keys() []string {
	if n.RBD == nil {
		return []string{"iscsi " + n.ISCSI.Target + "/" + strconv.Itoa(n.ISCSI.LUN)}
	}
	var keys []string
	for _, m := range n.RBD.Monitors {
		keys = append(keys, "rbd "+m+" "+n.RBD.Pool+"/"+n.RBD.Image)
	}
	return keys
}

// Source returns the kind of the disk.
func (n NetworkDisk) Source() Source {
	if n.RBD != nil {
		return SourceRBD
	}
	return SourceISCSI
}

// String names the disk for messages, without credentials.
func (n NetworkDisk) String() string {
	var what string
	if n.RBD != nil {
		what = fmt.Sprintf("RBD image %s/%s at %s", n.RBD.Pool, n.RBD.Image, strings.Join(n.RBD.Monitors, ", "))
	} else {
		what = fmt.Sprintf("iSCSI target %s, LUN %d, at %s", n.ISCSI.Target, n.ISCSI.LUN, strings.Join(n.ISCSI.Portals, ", "))
	}
	return fmt.Sprintf("PVC %s (PersistentVolume %s, %s)", n.PVC, n.Volume, what)
}

const (
	// maxPortals bounds portals and monitors.
	maxPortals = 16
	// maxLUN is what SCSI's flat addressing holds.
	maxLUN = 16383
)

var (
	// iscsiName takes names of targets and initiators (RFC 3720, 3.2.6).
	iscsiName = regexp.MustCompile(`^(iqn\.[0-9]{4}-[0-9]{2}\.[a-z0-9.:-]+|eui\.[0-9a-fA-F]{16}|naa\.[0-9a-fA-F]{16,32})$`)
	// cephName takes names without characters that mean something to QEMU's RBD driver.
	cephName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_.-]{0,127}$`)
)

// Check returns what no node can use.
func (n NetworkDisk) Check() error {
	switch {
	case (n.ISCSI == nil) == (n.RBD == nil):
		return errors.New("name iscsi or rbd")
	case len(validation.IsDNS1123Subdomain(n.PVC))+len(validation.IsDNS1123Subdomain(n.Volume)) > 0:
		return errors.New("name the PVC and its PersistentVolume")
	case (n.SecretName == "") != (n.SecretMount == ""):
		return errors.New("secretName and secretMount go together")
	case n.SecretName != "" && len(validation.IsDNS1123Subdomain(n.SecretName))+len(validation.IsDNS1123Label(n.SecretMount)) > 0:
		return fmt.Errorf("%q at %q is no mounted Secret", excerpt(n.SecretName), excerpt(n.SecretMount))
	case n.RBD != nil:
		return n.RBD.check(n.SecretName)
	}
	return n.ISCSI.check()
}

func (v ISCSIVolume) check() error {
	switch {
	case !iscsiName.MatchString(v.Target) || len(v.Target) > 223:
		return fmt.Errorf("%q is no iSCSI name of a target, such as iqn.2026-11.com.example:disk", excerpt(v.Target))
	case v.Initiator != "" && (!iscsiName.MatchString(v.Initiator) || len(v.Initiator) > 223):
		return fmt.Errorf("%q is no iSCSI name of an initiator, such as iqn.2026-11.com.example:node", excerpt(v.Initiator))
	case v.LUN < 0 || v.LUN > maxLUN:
		return fmt.Errorf("LUN %d is not between 0 and %d", v.LUN, maxLUN)
	}
	return checkPortals("portal", v.Portals)
}

func (v RBDVolume) check(secret string) error {
	for _, name := range []string{v.Pool, v.Image, v.User} {
		if !cephName.MatchString(name) {
			return fmt.Errorf("%q is no name of a pool, an image or a user: use letters, digits, dots, dashes and underscores", excerpt(name))
		}
	}
	if secret == "" {
		return errors.New("a Secret with the user's key is missing: set secretRef of the PersistentVolume")
	}
	return checkPortals("monitor", v.Monitors)
}

func checkPortals(what string, all []string) error {
	if len(all) == 0 || len(all) > maxPortals {
		return fmt.Errorf("%d %ss; use 1 to %d", len(all), what, maxPortals)
	}
	for _, p := range all {
		host, port, err := net.SplitHostPort(p)
		number, portErr := strconv.ParseUint(port, 10, 16)
		if err != nil || portErr != nil || number == 0 || net.ParseIP(host) == nil && len(validation.IsDNS1123Subdomain(host)) > 0 {
			return fmt.Errorf("%s %q is no address or host name with a port", what, excerpt(p))
		}
	}
	return nil
}

// ParseNetworkDisks reads the value of [AnnotationNetworkDisks]: disks by the names of
// their volumes.
func ParseNetworkDisks(text string) (map[string]NetworkDisk, error) {
	d := json.NewDecoder(bytes.NewReader([]byte(text)))
	d.DisallowUnknownFields()
	var all map[string]NetworkDisk
	if err := d.Decode(&all); err != nil {
		return nil, fmt.Errorf("%s: %s", AnnotationNetworkDisks, clip(err.Error(), maxPath))
	}
	if d.More() {
		return nil, fmt.Errorf("%s: more than one JSON object", AnnotationNetworkDisks)
	}
	if len(all) == 0 || len(all) > maxModes {
		return nil, fmt.Errorf("%s: %d disks; name 1 to %d", AnnotationNetworkDisks, len(all), maxModes)
	}
	var errs []error
	mounts := map[string]bool{}
	for _, name := range slices.Sorted(maps.Keys(all)) {
		n := all[name]
		if err := n.Check(); err != nil {
			errs = append(errs, fmt.Errorf("%s: volume %q: %w", AnnotationNetworkDisks, excerpt(name), err))
		}
		if n.SecretMount != "" && mounts[n.SecretMount] {
			errs = append(errs, fmt.Errorf("%s: volume %q: secretMount %q is another volume's, too", AnnotationNetworkDisks, excerpt(name), n.SecretMount))
		}
		mounts[n.SecretMount] = true
	}
	return all, capped(errs)
}

// checkUsed returns an error for network disks that no volume of the VM is.
func checkUsed(network map[string]NetworkDisk, disks []Disk) error {
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(network)) {
		if !slices.ContainsFunc(disks, func(d Disk) bool { return d.Name == name && d.Network != nil }) {
			errs = append(errs, fmt.Errorf("%s: the VM has no volume %q that is a PVC", AnnotationNetworkDisks, excerpt(name)))
		}
	}
	return capped(errs)
}
