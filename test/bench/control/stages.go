package control

import (
	"fmt"
	"strings"

	"github.com/nodevirt/nodevirt/shim/podstatus/condition"
)

// stages configures KWOK to write what the kubelet and the shim of a node write: that a node is ready,
// and of a VM's pod that it waits for its container, that its guest runs, and that its container does.
// Without a guest agent. A pod that is deleted is gone at once.
func stages() string { return fmt.Sprintf(stagesFormat, shimConditions()) }

// shimConditions are those of a guest that runs, as KWOK's template of a status.
func shimConditions() string {
	var b strings.Builder
	for _, c := range []struct{ kind, status, reason string }{
		{condition.VMReady, "True", condition.ReasonRunning},
		{condition.Paused, "False", condition.ReasonNotPaused},
		{condition.LiveMigratable, "True", condition.ReasonMigratable},
		{condition.AgentConnected, "False", condition.ReasonAgentDisconnected},
		{condition.GuestInfo, "False", condition.ReasonAgentDisconnected},
	} {
		fmt.Fprintf(&b, "      - {type: %q, status: %q, reason: %s, message: \"\", lastTransitionTime: {{ $now | Quote }}}\n",
			c.kind, c.status, c.reason)
	}
	return b.String()
}

// Each stage of a pod selects what the one before it has written.
const stagesFormat = `apiVersion: config.kwok.x-k8s.io/v1alpha1
kind: KwokConfiguration
options: {podPlayStageParallelism: 16, nodePlayStageParallelism: 16}
---
apiVersion: kwok.x-k8s.io/v1alpha1
kind: Stage
metadata: {name: node-is-ready}
spec:
  resourceRef: {apiGroup: v1, kind: Node}
  selector:
    matchExpressions:
    - {key: '.status.conditions.[] | select( .type == "Ready" ) | .status', operator: NotIn, values: ["True"]}
  next:
    statusTemplate: |
      {{ $now := Now }}
      phase: Running
      addresses:
      - {type: InternalIP, address: {{ NodeIP | Quote }}}
      allocatable: {cpu: 1k, memory: 4Ti, pods: 1k}
      capacity: {cpu: 1k, memory: 4Ti, pods: 1k}
      conditions:
      - type: Ready
        status: "True"
        reason: KubeletReady
        lastHeartbeatTime: {{ $now | Quote }}
        lastTransitionTime: {{ $now | Quote }}
---
apiVersion: kwok.x-k8s.io/v1alpha1
kind: Stage
metadata: {name: pod-waits}
spec:
  resourceRef: {apiGroup: v1, kind: Pod}
  selector:
    matchExpressions:
    - {key: '.metadata.deletionTimestamp', operator: DoesNotExist}
    - {key: '.status.phase', operator: In, values: [Pending]}
    - {key: '.status.startTime', operator: DoesNotExist}
  next:
    statusTemplate: |
      {{ $now := Now }}
      startTime: {{ $now | Quote }}
      {{ with NodeIPsWith .spec.nodeName }}
      hostIP: {{ index . 0 | Quote }}
      {{ end }}
      conditions:
      - {type: PodReadyToStartContainers, status: "False", lastTransitionTime: {{ $now | Quote }}}
      - {type: Initialized, status: "True", lastTransitionTime: {{ $now | Quote }}}
      - {type: Ready, status: "False", reason: ContainersNotReady, lastTransitionTime: {{ $now | Quote }}}
      - {type: ContainersReady, status: "False", reason: ContainersNotReady, lastTransitionTime: {{ $now | Quote }}}
      containerStatuses:
      {{ range .spec.containers }}
      - name: {{ .name | Quote }}
        image: {{ .image | Quote }}
        ready: false
        started: false
        restartCount: 0
        state: {waiting: {reason: ContainerCreating}}
      {{ end }}
---
apiVersion: kwok.x-k8s.io/v1alpha1
kind: Stage
metadata: {name: guest-runs}
spec:
  resourceRef: {apiGroup: v1, kind: Pod}
  selector:
    matchExpressions:
    - {key: '.metadata.deletionTimestamp', operator: DoesNotExist}
    - {key: '.status.phase', operator: In, values: [Pending]}
    - {key: '.status.startTime', operator: Exists}
    - {key: '.status.conditions.[] | select( .type == "nodevirt.io/VMReady" ) | .status', operator: NotIn, values: ["True"]}
  next:
    statusTemplate: |
      {{ $now := Now }}
      conditions:
%s---
apiVersion: kwok.x-k8s.io/v1alpha1
kind: Stage
metadata: {name: pod-runs}
spec:
  resourceRef: {apiGroup: v1, kind: Pod}
  selector:
    matchExpressions:
    - {key: '.metadata.deletionTimestamp', operator: DoesNotExist}
    - {key: '.status.phase', operator: In, values: [Pending]}
    - {key: '.status.conditions.[] | select( .type == "nodevirt.io/VMReady" ) | .status', operator: In, values: ["True"]}
  next:
    statusTemplate: |
      {{ $now := Now }}
      phase: Running
      {{ with PodIPsWith .spec.nodeName false .metadata.uid .metadata.name .metadata.namespace }}
      podIP: {{ index . 0 | Quote }}
      podIPs:
      {{ range . }}
      - ip: {{ . | Quote }}
      {{ end }}
      {{ end }}
      conditions:
      - {type: PodReadyToStartContainers, status: "True", lastTransitionTime: {{ $now | Quote }}}
      - {type: Ready, status: "True", lastTransitionTime: {{ $now | Quote }}}
      - {type: ContainersReady, status: "True", lastTransitionTime: {{ $now | Quote }}}
      containerStatuses:
      {{ range .spec.containers }}
      - name: {{ .name | Quote }}
        image: {{ .image | Quote }}
        imageID: {{ .image | Quote }}
        containerID: containerd://1a2b3c4d5e6f708192a3b4c5d6e7f8091a2b3c4d5e6f708192a3b4c5d6e7f809
        ready: true
        started: true
        restartCount: 0
        state: {running: {startedAt: {{ $now | Quote }}}}
      {{ end }}
---
apiVersion: kwok.x-k8s.io/v1alpha1
kind: Stage
metadata: {name: pod-is-gone}
spec:
  resourceRef: {apiGroup: v1, kind: Pod}
  selector:
    matchExpressions:
    - {key: '.metadata.deletionTimestamp', operator: Exists}
  next: {delete: true}
`
