"""The Temporal side: the interceptor, the plugin, and how activities of each kind are run and stopped."""
