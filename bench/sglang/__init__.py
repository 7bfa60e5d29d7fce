"""All that is known of SGLang from outside: arguments, payloads, control calls, logs, metrics."""
