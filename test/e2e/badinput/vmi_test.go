package badinput

import (
	"encoding/json"
	"fmt"
	"strings"

	"google.golang.org/grpc/codes"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// disks is what a VMI's spec needs beside its domain's other fields.
const disks = `"devices":{"disks":[{"name":"d","disk":{"bus":"virtio"}}]%s}`

// vmi annotates a pod with a VMI's spec: a domain's fields beside its devices,
// and fields of the devices beside the disks.
func vmi(domain, devices string) func(*runtimeapi.PodSandboxConfig) {
	return annotated("nodevirt.io/vmi", vmiText(domain, devices, ""))
}

// vmiAt is vmi with a path for the image's disk.
func vmiAt(path string) func(*runtimeapi.PodSandboxConfig) {
	return annotated("nodevirt.io/vmi", vmiText("", "", path))
}

func vmiText(domain, devices, path string) string {
	fields := []string{fmt.Sprintf(disks, devices)}
	if domain != "" {
		fields = append(fields, domain)
	}
	quoted, _ := json.Marshal(path) // can't fail
	return fmt.Sprintf(`{"domain":{%s},"volumes":[{"name":"d","containerDisk":{"image":"i","path":%s}}]}`,
		strings.Join(fields, ","), quoted)
}

// vmiCases are wrong in what the annotation nodevirt.io/vmi says.
func vmiCases() []badCase {
	refusedVMI := func(name, text string) badCase {
		return badCase{name: name, pod: annotated("nodevirt.io/vmi", text), code: codes.InvalidArgument}
	}
	refusedDomain := func(name, domain, devices string) badCase {
		return badCase{name: name, pod: vmi(domain, devices), code: codes.InvalidArgument}
	}
	return []badCase{
		refusedVMI("malformed JSON", `{"domain":`),
		refusedVMI("empty", ``),
		refusedVMI("unknown field", `{"domain":{"cpus":2,"devices":{}}}`),
		refusedVMI("unsupported field", `{"nodeSelector":{"a":"b"},"domain":{"devices":{"watchdog":{"name":"dog","diag288":{}}}}}`),
		refusedDomain("bad MAC", "", `,"interfaces":[{"name":"n","bridge":{},"macAddress":"02:00:00:00:00"}]`),
		refusedDomain("multicast MAC", "", `,"interfaces":[{"name":"n","bridge":{},"macAddress":"01:00:00:00:00:01"}]`),
		refusedDomain("XML in the CPU's model", `"cpu":{"model":"qemu64</model><feature name='x'/>"}`, ""),
		refusedDomain("slirp", "", `,"interfaces":[{"name":"n","slirp":{}}]`),
		refusedDomain("too little memory", `"memory":{"guest":"512Ki"}`, ""),
		refusedDomain("limits below requests", `"resources":{"requests":{"memory":"64Mi"},"limits":{"memory":"32Mi"}}`, ""),
		{name: "a path outside", pod: vmiAt("/disk/../etc/shadow"), code: codes.InvalidArgument},
	}
}
