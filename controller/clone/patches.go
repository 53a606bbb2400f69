package clone

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	api "kubevirt.io/api/clone/v1beta1"
	snapshotapi "kubevirt.io/api/snapshot/v1beta1"

	"github.com/nodevirt/nodevirt/controller/restore"
)

// operation is one of a JSON patch (RFC 6902).
type operation struct {
	Op    string `json:"op"`
	Path  string `json:"path"`
	Value any    `json:"value,omitempty"`
}

// patches returns what makes a VM of its source: it has none of the source's MAC addresses,
// serial number and UUID, and the labels and annotations that the filters keep. The author's
// patches come last.
func patches(source *snapshotapi.VirtualMachine, spec *api.VirtualMachineCloneSpec) ([]string, error) {
	all, err := addresses(source, spec.NewMacAddresses)
	if err != nil {
		return nil, err
	}
	all = append(all, identity(source, spec.NewSMBiosSerial)...)
	template := source.Spec.Template.ObjectMeta
	for _, of := range []struct {
		at      string
		have    map[string]string
		filters []string
	}{
		{"/metadata/labels", source.Labels, spec.LabelFilters},
		{"/metadata/annotations", source.Annotations, spec.AnnotationFilters},
		{"/spec/template/metadata/labels", template.Labels, spec.Template.LabelFilters},
		{"/spec/template/metadata/annotations", template.Annotations, spec.Template.AnnotationFilters},
	} {
		all = append(all, filtered(of.at, of.have, of.filters)...)
	}
	if n := len(all) + len(spec.Patches); n > restore.MaxPatches {
		return nil, fmt.Errorf("the clone differs from its source in %d points, at most %d are possible: filter out fewer labels and annotations",
			n, restore.MaxPatches)
	}
	var texts []string
	for _, o := range all {
		text, err := json.Marshal(o)
		if err != nil {
			return nil, fmt.Errorf("encode the patch of %s: %w", o.Path, err)
		}
		texts = append(texts, string(text))
	}
	return append(texts, spec.Patches...), nil
}

// addresses returns the operations that set MAC addresses, and remove others.
func addresses(source *snapshotapi.VirtualMachine, given map[string]string) ([]operation, error) {
	var all []operation
	missing := maps.Clone(given)
	for i, have := range source.Spec.Template.Spec.Domain.Devices.Interfaces {
		at := "/spec/template/spec/domain/devices/interfaces/" + strconv.Itoa(i) + "/macAddress"
		delete(missing, have.Name)
		if address := given[have.Name]; address != "" {
			all = append(all, operation{"add", at, address})
		} else if have.MacAddress != "" {
			all = append(all, operation{Op: "remove", Path: at})
		}
	}
	if names := slices.Sorted(maps.Keys(missing)); len(names) > 0 {
		return nil, fmt.Errorf("spec.newMacAddresses: the source has no interface %q in its spec", names[0])
	}
	return all, nil
}

// identity returns the operations for what identifies a VM in its SMBIOS. A VM without a UUID
// gets another.
func identity(source *snapshotapi.VirtualMachine, serial *string) []operation {
	const at = "/spec/template/spec/domain/firmware"
	var all []operation
	firmware := source.Spec.Template.Spec.Domain.Firmware
	given := serial != nil && *serial != ""
	switch {
	case given && firmware == nil:
		return []operation{{"add", at, map[string]string{"serial": *serial}}}
	case firmware == nil:
		return nil
	case given:
		all = append(all, operation{"add", at + "/serial", *serial})
	case firmware.Serial != "":
		all = append(all, operation{Op: "remove", Path: at + "/serial"})
	}
	if firmware.UUID != "" {
		all = append(all, operation{Op: "remove", Path: at + "/uuid"})
	}
	return all
}

// filtered returns the operations that remove what filters do not keep; nil filters keep all.
func filtered(at string, have map[string]string, filters []string) []operation {
	if filters == nil || len(have) == 0 {
		return nil
	}
	var all []operation
	for _, key := range slices.Sorted(maps.Keys(have)) {
		if !kept(key, filters) {
			all = append(all, operation{Op: "remove", Path: at + "/" + strings.NewReplacer("~", "~0", "/", "~1").Replace(key)})
		}
	}
	if len(all) == len(have) {
		return []operation{{Op: "remove", Path: at}}
	}
	return all
}

// kept reports whether a filter matches a key, and none with ! does.
func kept(key string, filters []string) bool {
	in := false
	for _, f := range filters {
		f, not := strings.CutPrefix(f, "!")
		prefix, many := strings.CutSuffix(f, "*")
		switch {
		case key != f && (!many || !strings.HasPrefix(key, prefix)):
		case not:
			return false
		default:
			in = true
		}
	}
	return in
}
