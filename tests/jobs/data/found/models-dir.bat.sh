llama-server --models-max 1 --models-preset "D:\PROG\AI\LM-models\models-preset.ini" --host 0.0.0.0 --port 8080
