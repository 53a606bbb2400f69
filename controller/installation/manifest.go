package installation

import (
	"maps"
	"path"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	kubevirt "kubevirt.io/api/core/v1"

	"github.com/nodevirt/nodevirt/controller/config"
	"github.com/nodevirt/nodevirt/controller/manifest"
	"github.com/nodevirt/nodevirt/shim/fields"
	"github.com/nodevirt/nodevirt/shim/vmspec"
)

// Bounds of values, beyond which they are mistakes.
const (
	maxSeconds    = 1 << 31
	maxMigrations = 1000
	maxRatio      = 1000
	leastPercent  = 10
	maxPercent    = 10_000
	maxGates      = 128
	maxText       = 253
	maxModels     = 256
)

// Works returns the fields of the object's spec that change something.
func Works() fields.Supported {
	vmi, rows := vmspec.Supported(), []fields.Row(nil)
	add := func(at string, more ...fields.Row) {
		for _, r := range more {
			rows = append(rows, fields.At(at+r.Path, r.Takes))
		}
	}
	add("configuration.",
		fields.At("additionalGuestMemoryOverheadRatio", fields.Match(`[0-9]{1,3}(\.[0-9]{1,9})?`, fields.MaxLabel)),
		fields.At("cpuModel", vmi.Takes("domain.cpu.model")),
		fields.At("cpuRequest", fields.Quantity),
		fields.At("emulatedMachines[]", pattern),
		fields.At("evictionStrategy", manifest.PodFields().Takes("evictionStrategy")),
		fields.At("instancetype.referencePolicy", fields.OneOf(kubevirt.Reference, kubevirt.Expand, kubevirt.ExpandAll)),
		fields.At("machineType", vmi.Takes("domain.machine.type")),
		fields.At("supportContainerResources", fields.List(maxGates)),
		fields.At("virtualMachineOptions.disableSerialConsoleLog", fields.Object),
		fields.At("vmRolloutStrategy", fields.OneOf(kubevirt.VMRolloutStrategyStage, kubevirt.VMRolloutStrategyLiveUpdate)),
		fields.At("vmStateStorageClass", fields.Subdomain),
	)
	for _, arch := range []string{vmspec.AMD64, vmspec.ARM64} {
		add("configuration.architectureConfiguration."+arch+".",
			fields.At("emulatedMachines[]", pattern),
			fields.At("machineType", vmi.Takes("domain.machine.type")),
		)
	}
	add("configuration.developerConfiguration.",
		fields.At("cpuAllocationRatio", fields.Integer(0, maxRatio)),
		fields.At("disabledFeatureGates[]", fields.OneOf(config.Switches()...)),
		fields.At("featureGates", fields.List(maxGates)),
		fields.At("featureGates[]", fields.Match(`[A-Za-z0-9]+`, fields.MaxLabel)),
		fields.At("memoryOvercommit", fields.Integer(leastPercent, maxPercent)),
		fields.At("useEmulation", fields.Boolean),
	)
	add("configuration.liveUpdateConfiguration.",
		fields.At("maxCpuSockets", fields.Integer(1, vmspec.MaxVCPUs)),
		fields.At("maxGuest", fields.Quantity),
		fields.At("maxHotplugRatio", fields.Integer(0, vmspec.MaxVCPUs)),
	)
	add("configuration.migrations.",
		fields.At("allowAutoConverge", fields.Boolean),
		fields.At("allowWorkloadDisruption", fields.Boolean),
		fields.At("bandwidthPerMigration", orZero(fields.Quantity)),
		fields.At("completionTimeoutPerGiB", fields.Integer(0, maxSeconds)),
		fields.At("nodeDrainTaintKey", taintKey),
		fields.At("parallelMigrationsPerCluster", fields.Integer(1, maxMigrations)),
		fields.At("parallelOutboundMigrationsPerNode", fields.Integer(1, maxMigrations)),
		fields.At("progressTimeout", fields.Integer(1, maxSeconds)),
	)
	add("configuration.network.",
		fields.At("defaultNetworkInterface", fields.OneOf(kubevirt.BridgeInterface, kubevirt.MasqueradeInterface)),
		fields.At("permitBridgeInterfaceOnPodNetwork", fields.Boolean),
	)
	add("configuration.permittedHostDevices.",
		fields.At("mediatedDevices", fields.List(maxGates)),
		fields.At("mediatedDevices[].externalResourceProvider", fields.Boolean),
		fields.At("mediatedDevices[].mdevNameSelector", fields.Text(maxText)),
		fields.At("mediatedDevices[].resourceName", fields.Text(maxText)),
		fields.At("pciHostDevices", fields.List(maxGates)),
		fields.At("pciHostDevices[].externalResourceProvider", fields.Boolean),
		fields.At("pciHostDevices[].pciVendorSelector", fields.Text(maxText)),
		fields.At("pciHostDevices[].resourceName", fields.Text(maxText)),
	)
	add("configuration.supportContainerResources[].",
		fields.At("type", fields.OneOf(
			kubevirt.HotplugAttachment, kubevirt.ContainerDisk, kubevirt.VirtioFS, kubevirt.SideCar, kubevirt.VMExport, kubevirt.GuestConsoleLog)),
	)
	add("workloadUpdateStrategy.",
		fields.At("workloadUpdateMethods[]", fields.OneOf(kubevirt.WorkloadUpdateMethodLiveMigrate, kubevirt.WorkloadUpdateMethodEvict)),
	)
	return fields.Supported{Rows: rows, Wholes: []fields.Whole{
		{Path: "configuration.autoCPULimitNamespaceLabelSelector", Is: "a label selector", Check: manifest.LabelSelector},
		{Path: "configuration.changedBlockTrackingLabelSelectors.namespaceLabelSelector", Is: "a label selector", Check: manifest.LabelSelector},
		{Path: "configuration.changedBlockTrackingLabelSelectors.virtualMachineLabelSelector", Is: "a label selector", Check: manifest.LabelSelector},
		{Path: "configuration.developerConfiguration.nodeSelectors", Is: "a map of labels", Check: manifest.LabelMap},
		{Path: "configuration.obsoleteCPUModels", Is: "a map of CPU models", Check: cpuModels},
		{Path: "configuration.network.binding", Is: "a map of network binding plug-ins", Check: bindings},
		{Path: "configuration.supportContainerResources[].resources.limits", Is: "a map of cpu and memory", Check: resources},
		{Path: "configuration.supportContainerResources[].resources.requests", Is: "a map of cpu and memory", Check: resources},
	}}
}

// resources checks a map of quantities of CPU and memory.
func resources(at *field.Path, value any) field.ErrorList {
	all, ok := value.(map[string]any)
	if !ok {
		return field.ErrorList{fields.WrongType(at, value, "an object")}
	}
	var problems field.ErrorList
	for _, name := range slices.Sorted(maps.Keys(all)) {
		at := at.Key(fields.Excerpt(name))
		if name != string(corev1.ResourceCPU) && name != string(corev1.ResourceMemory) {
			problems = append(problems, field.NotSupported(at, fields.Excerpt(name), []string{string(corev1.ResourceCPU), string(corev1.ResourceMemory)}))
		} else if err := orZero(fields.Quantity)(at, all[name]); err != nil {
			problems = append(problems, err)
		}
	}
	return problems
}

// cpuModels checks a map of CPU models to whether each is obsolete.
func cpuModels(at *field.Path, value any) field.ErrorList {
	all, ok := value.(map[string]any)
	if !ok {
		return field.ErrorList{fields.WrongType(at, value, "an object")}
	}
	if len(all) > maxModels {
		return field.ErrorList{field.TooMany(at, len(all), maxModels)}
	}
	var problems field.ErrorList
	for _, model := range slices.Sorted(maps.Keys(all)) {
		at := at.Key(fields.Excerpt(model))
		if _, is := all[model].(bool); !is {
			problems = append(problems, fields.WrongType(at, all[model], "true or false"))
		}
		if len(validation.IsQualifiedName(kubevirt.CPUModelLabel+model)) > 0 {
			problems = append(problems, field.Invalid(at, fields.Excerpt(model), "write a CPU model of libvirt's, such as Penryn"))
		}
	}
	return problems
}

// Harmless returns the fields that the object may have, and whose values change nothing: what they say is so in
// any case, or is of parts of KubeVirt's that nodevirt does not have.
func Harmless() fields.Supported {
	var rows []fields.Row
	add := func(at string, more ...fields.Row) {
		for _, r := range more {
			rows = append(rows, fields.At(at+r.Path, r.Takes))
		}
	}
	add("",
		fields.At("certificateRotateStrategy", fields.Object),
		fields.At("customizeComponents", fields.Object),
		fields.At("imagePullPolicy", fields.OneOf("Always", "IfNotPresent", "Never")),
		fields.At("uninstallStrategy", fields.OneOf(
			kubevirt.KubeVirtUninstallStrategyRemoveWorkloads, kubevirt.KubeVirtUninstallStrategyBlockUninstallIfWorkloadsExist)),
	)
	add("workloadUpdateStrategy.",
		fields.At("batchEvictionInterval", fields.Text(maxText)),
		fields.At("batchEvictionSize", fields.Integer(0, maxSeconds)),
	)
	for _, part := range []string{"api", "controller", "handler", "webhook"} {
		add("configuration."+part+"Configuration.restClient.rateLimiter.tokenBucketRateLimiter.",
			fields.At("burst", fields.Integer(0, maxSeconds)),
			fields.At("qps", number),
		)
	}
	add("configuration.",
		fields.At("commonInstancetypesDeployment.enabled", fields.Only(false)),
		fields.At("hypervisors[].name", fields.OneOf(kubevirt.KvmHypervisorName)),
		fields.At("mediatedDevicesConfiguration.enabled", fields.Only(false)),
		fields.At("minCPUModel", fields.Text(maxText)),
		fields.At("network.permitSlirpInterface", fields.Only(false)),
		fields.At("persistentReservationConfiguration.enabled", fields.Only(false)),
		fields.At("roleAggregationStrategy", fields.OneOf(kubevirt.RoleAggregationStrategyAggregateToDefault)),
		fields.At("supportedGuestAgentVersions[]", fields.Text(maxText)),
		fields.At("tlsConfiguration.minTLSVersion", fields.OneOf(kubevirt.VersionTLS10, kubevirt.VersionTLS11, kubevirt.VersionTLS12)),
		fields.At("virtTemplateDeployment.enabled", fields.Only(false)),
	)
	for _, arch := range []string{"ppc64le", "s390x"} { // no guest has it
		add("configuration.architectureConfiguration."+arch+".",
			fields.At("emulatedMachines[]", pattern),
			fields.At("machineType", fields.Text(maxText)),
			fields.At("ovmfPath", fields.Text(maxText)),
		)
	}
	add("configuration.developerConfiguration.",
		fields.At("clusterProfiler", fields.Only(false)),
	)
	for _, part := range []string{"API", "Controller", "Handler", "Launcher", "Operator", "SynchronizationController"} {
		add("configuration.developerConfiguration.logVerbosity.", fields.At("virt"+part, fields.Integer(0, maxRatio)))
	}
	add("configuration.migrations.",
		fields.At("allowPostCopy", fields.Only(false)),
		fields.At("disableTLS", fields.Boolean),
		fields.At("unsafeMigrationOverride", fields.Only(false)),
	)
	return fields.Supported{Rows: rows}
}

// pattern takes a pattern of machine types, such as q35 or pc-q35*.
func pattern(at *field.Path, value any) *field.Error {
	return fields.String(func(at *field.Path, s string) *field.Error {
		if _, err := path.Match(s, ""); err != nil || len(s) > fields.MaxLabel {
			return fields.Invalid(at, s, "must be a pattern of machine types, such as pc-q35*, of at most %d characters", fields.MaxLabel)
		}
		return nil
	})(at, value)
}

// taintKey takes the key of a taint.
func taintKey(at *field.Path, value any) *field.Error {
	return fields.String(func(at *field.Path, s string) *field.Error {
		if len(validation.IsQualifiedName(s)) > 0 {
			return fields.Invalid(at, s, "must be the key of a taint, such as kubevirt.io/drain")
		}
		return nil
	})(at, value)
}

// number takes a number that is not negative.
func number(at *field.Path, value any) *field.Error {
	switch n := value.(type) {
	case int64:
		if n >= 0 {
			return nil
		}
	case float64:
		if n >= 0 {
			return nil
		}
	}
	return fields.WrongType(at, value, "a number, 0 or more")
}

// orZero takes 0 as well, which stands for no limit.
func orZero(takes fields.Takes) fields.Takes {
	return func(at *field.Path, value any) *field.Error {
		if value == "0" || value == int64(0) {
			return nil
		}
		return takes(at, value)
	}
}

// Supported returns the fields of the object's spec that a manifest may have.
func Supported() fields.Supported {
	all := Works().And(Harmless())
	all.Hints = maps.Clone(all.Hints)
	maps.Copy(all.Hints, hints())
	return all
}

// CheckManifest decodes the object's spec out of a manifest. The spec is nil if there is a problem.
func CheckManifest(at *field.Path, tree any) (*kubevirt.KubeVirtSpec, field.ErrorList) {
	table := Supported().Table(func() any { return new(kubevirt.KubeVirtSpec) })
	spec, problems := fields.CheckAs[kubevirt.KubeVirtSpec](table, at, tree)
	if spec != nil {
		problems = append(problems, fields.Unrelated(contradictions(at.Child("configuration"), &spec.Configuration), problems)...)
	}
	if len(problems) > 0 {
		return nil, problems
	}
	return spec, nil
}

// contradictions returns what no field shows by itself.
func contradictions(at *field.Path, c *kubevirt.KubeVirtConfiguration) field.ErrorList {
	var problems field.ErrorList
	if d := c.DeveloperConfiguration; d != nil {
		for i, gate := range d.DisabledFeatureGates {
			if slices.Contains(d.FeatureGates, gate) {
				problems = append(problems, fields.Invalid(at.Child("developerConfiguration", "disabledFeatureGates").Index(i), gate,
					"is in featureGates too; remove it from one of them"))
			}
		}
	}
	external := func(list string, i int, is bool) {
		if !is {
			problems = append(problems, field.Required(at.Child("permittedHostDevices", list).Index(i).Child("externalResourceProvider"),
				"must be true: nodevirt has no device plugin; run one for this resource"))
		}
	}
	if p := c.PermittedHostDevices; p != nil {
		for i, d := range p.PciHostDevices {
			external("pciHostDevices", i, d.ExternalResourceProvider)
		}
		for i, d := range p.MediatedDevices {
			external("mediatedDevices", i, d.ExternalResourceProvider)
		}
	}
	return problems
}
