// Package preset defines the kind VirtualMachineInstancePreset: which fields a
// preset has and what the API says about the kind. Package admission applies
// presets to instances.
package preset
