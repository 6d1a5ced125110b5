"""What any controller needs: leading, watching, keys to work on, writes that are guarded."""
