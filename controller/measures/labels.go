package measures

import (
	"maps"
	"slices"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
)

// labels reports the labels of VMs and of their templates. They name the metric's labels, so VMs have different descriptions.
type labels struct{ set }

const machineLabels = "vm_labels"

func newLabels() labels {
	l := labels{set{}}
	l.add(machineLabels, labelsHelp, "name", "namespace")
	return l
}

const labelsHelp = "1 for a VM, with its labels and those of its template, which win, as label_NAME."

func (l labels) collect(all *objects, send sender) {
	for i := range all.machines.Items {
		vm := &all.machines.Items[i]
		names, values := []string{"name", "namespace"}, []string{vm.Name, vm.Namespace}
		of := map[string]string{}
		maps.Copy(of, vm.Labels)
		if t := vm.Spec.Template; t != nil {
			maps.Copy(of, t.ObjectMeta.Labels)
		}
		for _, key := range slices.Sorted(maps.Keys(of)) {
			if name := "label_" + labelName(key); !slices.Contains(names, name) {
				names, values = append(names, name), append(values, of[key])
			}
		}
		d := l.set[machineLabels]
		if len(names) > 2 {
			d = prometheus.NewDesc("kubevirt_"+machineLabels, labelsHelp, names, nil)
		}
		send(d, 1, values...)
	}
}

// labelName returns Prometheus' name for that of a label in Kubernetes.
func labelName(key string) string {
	return strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' {
			return r
		}
		return '_'
	}, key)
}
