// Package migrationpolicy defines the kind MigrationPolicy, which policy is an instance's,
// and how a migration is configured with it. It leaves what to do with the configuration
// to package migration.
package migrationpolicy
